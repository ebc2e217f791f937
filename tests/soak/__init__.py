"""Every long proof of the project, run for a given time or count, with one table of the results.

python -m tests.soak --minutes 60                       all proofs, within an hour
python -m tests.soak --count 1000                       1,000 seeds of each simulation, 1,000 kills, and so on
python -m tests.soak --only 'store-*' --count 200       some of them
python -m tests.soak --only fuzz --seed 7               one trial again

proofs.py    the list: a new proof is one entry there
worker.py    a process that runs trials of one proof
running.py   starts the workers, and notices those that die or take too long
page.py      the table, on the terminal and in docs/evidence.md
"""
