"""Commands in processes of their own on a local Ray, and the actors among their processes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

PATIENCE = 600
"""Seconds after which a cluster that does not move has hung."""


def start(*arguments):
    """Start Python in a process of its own, one thread each, as actors have."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def reweigh(*arguments):
    """Start a command."""
    return start("-m", "reweigh", *arguments)


def finish(process):
    """What a process says until it ends well."""
    said = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 0, said
    return said


def until(condition, process):
    """Wait for something to become true while a process runs; what it became, or None if the process ended first."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if process.poll() is not None:
            return None
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def actors(process):
    """The processes in which actors of a local cluster live."""
    import psutil

    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if child.cmdline()[:1] and child.cmdline()[0].startswith("ray::Actor"):
                found.append(child)
        except psutil.Error:
            continue
    return found


def kill_worker(process, dice: random.Random):
    """Kill a random actor with -9 at a random moment."""
    time.sleep(dice.uniform(0, 0.5))
    victims = until(lambda: actors(process), process)
    if victims:
        dice.choice(victims).kill()


def kill_driver(process, dice: random.Random):
    """Kill a driver with -9 at a random moment, and what Ray leaves of its cluster."""
    import psutil

    time.sleep(dice.uniform(0, 0.5))
    below = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for left in psutil.wait_procs(below, timeout=20)[1]:  # Ray ends its own
        left.kill()
