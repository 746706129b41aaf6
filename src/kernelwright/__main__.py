"""`python -m kernelwright`: the command line."""

from kernelwright.agent.cli.main import main

if __name__ == "__main__":
    main()
