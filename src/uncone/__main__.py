"""`python -m uncone`."""

from uncone.cli import main

main()
