"""Sees that the last line of `script/test` is true, and that --filter finds what it names.

usage: counting_test.py ROOT
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop())
GTEST, OTHER = ["unit", "gtest"], ["unit"]


class CountTests(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def build(self, name, programs):
        """programs: {name: (labels, status, report)}; a report is text, a list of cases, or None."""
        (self.folder / name).mkdir()
        tests, ran = [], ""
        for program, (labels, status, report) in programs.items():
            tests.append({"name": program, "properties": [{"name": "LABELS", "value": labels}]})
            ran += f'<testcase name="{program}" status="{status}"/>'
            if isinstance(report, list):
                report = "<testsuites>" + "".join(
                    f'<testcase classname="Suite" name="{case}" status="run">{f"<{inside}/>" if inside else ""}'
                    "</testcase>" for case, inside in report) + "</testsuites>"
            if report is not None:
                (self.folder / name / f"{program}.xml").write_text(report)
        (self.folder / f"{name}.json").write_text(json.dumps({"tests": tests}))
        (self.folder / f"{name}.junit").write_text(f"<testsuite>{ran}</testsuite>")

    def count(self, failed_steps=0):
        done = subprocess.run([sys.executable, ROOT / "script/lib/count_tests.py", self.folder, str(failed_steps)],
                              capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()[-1], done.stderr

    def test_what_passed_is_counted_by_its_cases(self):
        self.build("asan", {"a": (GTEST, "run", [("One", ""), ("Two", "")]), "script": (OTHER, "run", None)})
        self.assertEqual(self.count()[:2], (0, "3 passed, 0 failed"))

    def test_a_failure_is_named(self):
        self.build("asan", {"a": (GTEST, "fail", [("One", "failure"), ("Two", "")])})
        code, line, told = self.count()
        self.assertEqual((code, line), (1, "1 passed, 1 failed"))
        self.assertIn("failed: asan: a: Suite.One", told)

    def test_a_failure_is_told_with_what_it_says(self):
        self.build("asan", {"a": (GTEST, "fail", '<testsuites><testcase classname="Suite" name="One"><failure>'
                                                 'a.cpp:7\nexpected 1</failure></testcase></testsuites>')})
        self.assertEqual(self.count()[2], "failed: asan: a: Suite.One\n    a.cpp:7\n    expected 1\n")

    def test_of_a_program_that_crashed_the_last_lines_are_told(self):
        self.build("asan", {"a": (GTEST, "fail", [("One", "")])})
        report = self.folder / "asan.junit"
        output = "<system-out>" + "\n".join(f"line {line}" for line in range(100)) + "</system-out></testcase>"
        report.write_text(report.read_text().replace("/>", ">" + output))
        self.assertEqual(self.count()[2], "failed: asan: a\n" + "".join(f"    line {line}\n" for line in range(70, 100)))

    def test_a_program_without_a_report_has_failed(self):
        for report in None, "", "<testsuites><testcase", "<testsuites/>":
            with self.subTest(report=report):
                self.setUp()
                self.build("asan", {"a": (GTEST, "run", report), "b": (GTEST, "run", [("One", "")])})
                self.assertEqual(self.count()[:2], (1, "1 passed, 1 failed"))

    def test_a_program_that_crashed_behind_its_last_case_has_failed(self):
        self.build("asan", {"a": (GTEST, "fail", [("One", "")])})
        self.assertEqual(self.count()[:2], (1, "1 passed, 1 failed"))

    def test_what_did_not_run_is_not_counted_by_the_report_of_another_time(self):
        self.build("asan", {"a": (GTEST, "notrun", [("One", "")])})
        self.assertEqual(self.count()[:2], (1, "0 passed, 1 failed"))

    def test_a_skip_is_told_and_is_no_success(self):
        self.build("asan", {"a": (GTEST, "run", [("One", "skipped")])})
        self.assertEqual(self.count()[:2], (1, "0 passed, 0 failed, 1 skipped"))

    def test_a_test_of_two_builds_counts_once_as_the_worst_of_them(self):
        self.build("asan", {"a": (GTEST, "run", [("One", ""), ("Two", "skipped")])})
        self.build("tsan", {"a": (GTEST, "fail", [("One", "failure"), ("Two", "")])})
        self.assertEqual(self.count()[:2], (1, "1 passed, 1 failed"))

    def test_a_step_that_failed_is_a_failure(self):
        self.build("asan", {"a": (GTEST, "run", [("One", "")])})
        self.assertEqual(self.count(failed_steps=2)[:2], (1, "1 passed, 2 failed"))

    def test_nothing_at_all_is_no_success(self):
        self.assertEqual(self.count()[:2], (1, "0 passed, 0 failed"))


class FindTests(unittest.TestCase):
    LIST = "One.\n  First\n  Second  # GetParam() = 2\nBoth/Two.\n  Third/0\n"

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.build = pathlib.Path(scratch.name)
        program = self.build / "listing_test"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{self.LIST}END\n")
        program.chmod(0o755)
        (self.build / "CTestTestfile.cmake").write_text(
            f'add_test(listing_test "{program}")\nset_tests_properties(listing_test PROPERTIES LABELS "unit;gtest")\n'
            f'add_test(a_script "{self.build / "no_such_program"}")\n')

    def find(self, regex):
        return subprocess.run([sys.executable, ROOT / "script/lib/find_tests.py", self.build, regex], check=True,
                              capture_output=True, text=True).stdout.splitlines()

    def test_a_program_is_meant_whole(self):
        self.assertEqual(self.find("listing"), ["listing", ""])

    def test_a_test_is_found_by_its_name_with_its_parameters(self):
        self.assertEqual(self.find("One"), ["^(listing_test)$", "One.First:One.Second"])
        self.assertEqual(self.find("Two.Third"), ["^(listing_test)$", "Both/Two.Third/0"])

    def test_what_nothing_is_called_by_comes_back(self):
        self.assertEqual(self.find("Nothing"), ["Nothing", ""])


if __name__ == "__main__":
    unittest.main()
