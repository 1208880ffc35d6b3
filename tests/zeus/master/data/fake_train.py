"""A training script that trains nothing: its cost is a number that depends on batch size and seed.

Arguments: batch size, learning rate, seed, epochs, and how it behaves.
"""

import json
import os
import random
import sys

batch_size, seed, epochs, mode = int(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
told = {name: value for name, value in os.environ.items() if name.startswith("ZEUS_")}
print("ENV", json.dumps(told, sort_keys=True))
print("ARGV", json.dumps(sys.argv[1:]), "CWD", os.getcwd())
print("to stderr", file=sys.stderr)

USUAL = {8: 900.0, 16: 500.0, 32: 300.0, 64: 350.0, 128: 1200.0}
cost = USUAL[batch_size] * (1 + 0.1 * random.Random(seed).gauss(0, 1))
eta = float(told["ZEUS_ETA_KNOB"])
energy, time = cost, cost / 250
full = eta * energy + (1 - eta) * 250 * time
reached = full < float(told["ZEUS_COST_THRESH"])
if mode in ("never", "nodefault"):
    reached = False
if mode == "afterfirst":
    reached = seed == 1
if not reached:
    energy, time = energy * 0.5, time * 0.5

report = {"energy": energy, "time": time, "cost": full, "num_epochs": epochs, "reached": reached}
if mode == "strbool":
    report["reached"] = str(reached)
if mode == "weird":
    report["reached"] = "yes"
if mode == "strnum":
    report["energy"] = str(energy)
if mode == "nokey":
    del report["reached"]
if mode == "nojson":
    sys.exit(0)
path = os.path.join(told["ZEUS_LOG_DIR"], f"{told['ZEUS_JOB_ID']}+bs{batch_size}.train.json")
with open(path, "w", encoding="utf-8") as stream:
    json.dump(report, stream)
if mode == "exit3":
    sys.exit(3)
