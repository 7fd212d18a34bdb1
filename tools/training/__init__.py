"""How the embedded model was trained: its grammar, losses, schedule and checks. Runs from a clone, not from the wheel.

python -m tools.training sample -o sheet.png   # scenes with the descriptions that training uses
python -m tools.training check                 # how good the shipped model is
python -m tools.training train -o run          # train it again; the same command resumes
"""
