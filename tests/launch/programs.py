"""Programs that the tests launch."""

# Says who it is, then does as it is told.
TALK = """
import json, os, sys
task = json.loads(os.environ["TF_CONFIG"])["task"]
print("I am %s/%d" % (task["type"], task["index"]))
"""
# Trains for ever, as far as anyone can tell.
STEPS = """
import json, os, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
for step in range(1, 100000):
    print("step %d loss %.3f" % (step, 1.0 / step), flush=True)
    time.sleep(0.01)
"""
# A ps serves until it is ended; workers do what `%s` says.
ROLES = """
import json, os, signal, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
if task["type"] == "ps":
    print("serving")
    while True:
        time.sleep(1)
index = task["index"]
%s
"""
