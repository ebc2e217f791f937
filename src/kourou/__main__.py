"""`python -m kourou` is `kourou`."""

from kourou.cli.main import main

if __name__ == "__main__":
    main()
