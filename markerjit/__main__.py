"""`python -m markerjit`: the command line, where its script is not on the path."""

from markerjit.cli.main import main

if __name__ == "__main__":
    main()
