"""FlockMQ beside other brokers: one run, one machine, one core for the broker and one for the client.

`shapes` says what is measured, `peers` and `ours` with whom, `client` measures, `results` reduces, `bars` judges and
`report` writes it down. `../run.py` is the command.
"""
