"""The benchmarks' files: downloaded completely or not at all, checked, unpacked safely."""
