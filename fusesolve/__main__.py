"""`python -m fusesolve`: the same as the console script `fusesolve`."""

from fusesolve.cli import run

if __name__ == "__main__":
    run()
