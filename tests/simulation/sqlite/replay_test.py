"""What outbox-sim prints of a seed is the same each time, and what nobody knows is refused.

usage: replay_test.py OUTBOX_SIM SIMULATION
"""

import os
import subprocess
import sys
import unittest

OUTBOX_SIM, SIMULATION = sys.argv[1:3]


def run(*command, **environment):
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True,
                          timeout=300)


class Replay(unittest.TestCase):
    def test_one_seed_is_one_timeline(self):
        for which in (["--seed", "7"], ["--seed", "7", "--kind", "quiet"],
                      ["--receiving", "--seed", "7"]):
            one, other = run(OUTBOX_SIM, *which), run(OUTBOX_SIM, *which)
            self.assertEqual(one.returncode, 0, one.stdout[-2000:] + one.stderr)
            self.assertGreater(one.stdout.count("\n"), 100)
            self.assertEqual(one.stdout, other.stdout)

    def test_many_are_run_and_counted(self):
        many = run(OUTBOX_SIM, "--seeds", "3", "--jobs", "2")
        self.assertEqual(many.returncode, 0, many.stdout[-2000:] + many.stderr)
        self.assertIn("3 of 3 histories", many.stderr)

    def test_what_nobody_knows_is_refused_naming_what_there_is(self):
        for option, known in (("--kind", "quiet"), ("--less", "kills")):
            refused = run(OUTBOX_SIM, "--seed", "7", option, "nonsense")
            self.assertEqual(refused.returncode, 2)
            self.assertIn(known, refused.stderr)
        for variable, said in (("OUTBOX_SIMULATION_SEED", "is no number"),
                               ("OUTBOX_SIMULATION_KIND", "route_changes")):
            refused = run(SIMULATION, "--gtest_filter=Simulation.EveryHistoryKeepsThePromises",
                          **{variable: "nonsense"})
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(said, refused.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
