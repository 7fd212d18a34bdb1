"""Write the project's address where readers need it: pyproject.toml is the one place to fill it in.

    python scripts/address.py https://github.com/OWNER/reweigh   # fill it in, everywhere
    python scripts/address.py                                    # check that nothing else hard-codes one

Without an address, links in README are relative, so they work in a clone and not on an index.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
WRITTEN = ("pyproject.toml", "CITATION.cff", "mkdocs.yml", "README.md")
"""The files that hold the address; this script writes them."""
HARD_CODED = re.compile(r"https://(?:github|gitlab)\.com/[\w.-]+/reweigh\b(?!-)")
URLS = "[project.urls]\n"
LINK = re.compile(r'(\]\(|src="|srcset=")(?![a-z]+:|#)([^)"]+)')


def address() -> str | None:
    """The address in pyproject.toml, if there is one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository")


def absolute(readme: str, home: str) -> str:
    """README with absolute links: pictures as files, everything else as pages.

    >>> absolute("[a](docs/a.md) ![b](docs/b.png)", "https://github.com/o/reweigh")
    '[a](https://github.com/o/reweigh/blob/main/docs/a.md) ![b](https://github.com/o/reweigh/raw/main/docs/b.png)'
    """

    def link(found: re.Match[str]) -> str:
        kind = "raw" if re.search(r"\.(svg|png|webp)$", found[2]) else "blob"
        return f"{found[1]}{home}/{kind}/main/{found[2]}"

    return LINK.sub(link, readme)


def write(home: str) -> None:
    """Fill the address in."""
    if not HARD_CODED.fullmatch(home):
        raise SystemExit(f"{home} is no address of a repository called reweigh")
    if address() is not None:
        raise SystemExit(f"the address is {address()} already; replace it in {', '.join(WRITTEN)}")
    urls = f'{URLS}Repository = "{home}"\nIssues = "{home}/issues"\nChangelog = "{home}/blob/main/CHANGELOG.md"\n\n'
    for name, old, new in (
        ("pyproject.toml", "[project.scripts]\n", f"{urls}[project.scripts]\n"),
        ("CITATION.cff", "license: Apache-2.0\n", f'license: Apache-2.0\nrepository-code: "{home}"\n'),
        ("mkdocs.yml", "site_name: reweigh\n", f"site_name: reweigh\nrepo_url: {home}\n"),
    ):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert text.count(old) == 1, name
        (ROOT / name).write_text(text.replace(old, new), encoding="utf-8")
    readme = ROOT / "README.md"
    readme.write_text(absolute(readme.read_text(encoding="utf-8"), home), encoding="utf-8")


def misplaced() -> list[str]:
    """Every address that is not the one in pyproject.toml, or stands in a file that this script does not write."""
    home, found = address(), []
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in files.splitlines():
        path = ROOT / name
        if name.startswith(("scripts/address", "tests/")) or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="ignore").splitlines(), 1):
            for one in HARD_CODED.findall(line):
                if one != home or name not in WRITTEN:
                    found.append(f"{name}:{number}: {one}")
    return found


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write(sys.argv[1])
    elif wrong := misplaced():
        raise SystemExit(
            "the project's address belongs in pyproject.toml (scripts/address.py):\n" + "\n".join(wrong)
        )
