"""The tables and figures of the ACR paper, each by one command: ours beside theirs."""
