"""`python -m snaps`: the same as the command `snaps`."""

from snaps.cli import main

main()
