"""Serves Optuna's TPE on a pipe for other_methods.py; needs Optuna and nothing of lotus.

Reads JSON lines: {"new": {parameter: values}, "seed": N}, {"ask": 1}, {"tell": rate or null}.
"""

import json
import sys

import optuna


def main():
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print(optuna.__version__, flush=True)
    study = trial = values = None
    for line in sys.stdin:
        question = json.loads(line)
        answer = {}
        if "new" in question:
            values = question["new"]
            sampler = optuna.samplers.TPESampler(seed=question["seed"])
            study = optuna.create_study(direction="maximize", sampler=sampler)
        elif "ask" in question:
            trial = study.ask()
            # By position: numbers of workers have an order, if not even steps.
            answer = {
                name: some[trial.suggest_int(name, 0, len(some) - 1)]
                for name, some in values.items()
            }
        elif question["tell"] is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, question["tell"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
