"""`python -m kourou` runs the command `kourou`."""

from kourou.cli.main import main

if __name__ == "__main__":
    main()
