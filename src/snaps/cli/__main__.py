"""`python -m snaps.cli`: the same as the command `snaps`."""

from snaps.cli import main

main()
