"""What measures the package and makes what it ships: ``bench`` and ``training``. Not installed with it."""
