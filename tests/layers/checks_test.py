"""The checks of tools/ find what they are for: each test writes a small tree with one fault."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../tools"))
import check_docs
import check_layers
import check_words
from cxx_source import code_only

TABLE = """
intarsia_folder(base)
intarsia_folder(io DEPS base LIBS Threads::Threads)
intarsia_folder(plan DEPS base)
intarsia_folder(tensor TORCH DEPS base)
intarsia_folder(config DEPS base)
intarsia_folder(train TORCH DEPS base config)
"""


class Tree:
    """A temporary project holding the table and the given files."""

    def __init__(self, files):
        self.files = {"intarsia/CMakeLists.txt": TABLE, "intarsia/base/text.h": "#pragma once\n",
                      "intarsia/tensor/flat.h": "#pragma once\n", **files}

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        for path, text in self.files.items():
            full = os.path.join(self.folder.name, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w") as file:
                file.write(text)
        return self.folder.name

    def __exit__(self, *_):
        self.folder.cleanup()


class Layers(unittest.TestCase):
    def problems(self, files):
        with Tree(files) as root:
            return check_layers.check(root)

    def assert_one(self, files, part):
        problems = self.problems(files)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(part, problems[0])

    def test_allows_what_the_table_names(self):
        self.assertEqual(self.problems({"intarsia/io/file.cc": '#include "intarsia/base/text.h"\n#include <vector>\n'}), [])

    def test_refuses_a_folder_that_the_line_does_not_name(self):
        self.assert_one({"intarsia/io/file.h": "#pragma once\n", "intarsia/plan/a.cc": '\n#include "intarsia/io/file.h"\n'},
                        "intarsia/plan/a.cc:2: ")

    def test_holds_unit_tests_to_their_folders_line(self):
        self.assert_one({"intarsia/io/file_test.cc": '#include "intarsia/tensor/flat.h"\n'}, "lets io include only: base")

    def test_lets_cli_include_all(self):
        self.assertEqual(self.problems({"intarsia/cli/rank_commands/a.cc": '#include "intarsia/tensor/flat.h"\n'}), [])

    def test_refuses_torch_in_commands_without_torch(self):
        self.assert_one({"intarsia/cli/commands/a.cc": '#include "intarsia/tensor/flat.h"\n'}, "needs torch")

    def test_refuses_torch_headers_in_folders_without_torch(self):
        self.assert_one({"intarsia/plan/a.cc": "#include <ATen/ATen.h>\n"}, "without torch")

    def test_refuses_a_file_that_does_not_exist(self):
        self.assert_one({"intarsia/io/a.cc": '#include "intarsia/base/gone.h"\n'}, "does not exist")

    def test_refuses_relative_paths(self):
        self.assert_one({"intarsia/io/a.cc": '#include "file.h"\n'}, "from the repository root")

    def test_refuses_another_folders_internals(self):
        self.assert_one({"intarsia/base/internal/x.h": "#pragma once\n",
                         "intarsia/io/a.cc": '#include "intarsia/base/internal/x.h"\n'}, "internal to base")

    def test_refuses_a_folder_without_a_line(self):
        self.assert_one({"intarsia/extra/a.cc": '#include "intarsia/base/text.h"\n'}, "extra has no line")

    def test_shows_the_configuration_to_assemble_only(self):
        config = {"intarsia/config/a.h": "#pragma once\n"}
        self.assertEqual(self.problems({**config, "intarsia/train/assemble.cc": '#include "intarsia/config/a.h"\n'}), [])
        self.assert_one({**config, "intarsia/train/loop.cc": '#include "intarsia/config/a.h"\n'}, "only assemble.cc")

    def test_refuses_tests_in_the_library(self):
        self.assert_one({"tests/support/x.h": "#pragma once\n", "intarsia/io/a.cc": '#include "tests/support/x.h"\n'},
                        "not part of the library")
        helper = {"intarsia/io/testing_files.h": "#pragma once\n"}
        self.assert_one({**helper, "intarsia/io/a.cc": '#include "intarsia/io/testing_files.h"\n'}, "not part of the library")
        self.assertEqual(self.problems({**helper, "intarsia/io/a_test.cc": '#include "intarsia/io/testing_files.h"\n'}), [])

    def test_lets_tests_name_what_lies_beside_them(self):
        self.assertEqual(self.problems({"tests/parity/x.h": "#pragma once\n", "tests/parity/a.cc": '#include "x.h"\n'}), [])

    def test_wants_pragma_once_outside_comments(self):
        self.assert_one({"intarsia/io/a.h": "// #pragma once\n"}, "no #pragma once")

    def test_ignores_includes_in_comments(self):
        self.assertEqual(self.problems({"intarsia/base/a.cc": '/*\n#include "intarsia/tensor/flat.h"\n*/\n'
                                                              '// #include "intarsia/tensor/flat.h"\n'}), [])

    def test_refuses_arrows_that_go_down_and_torch_below_its_line(self):
        _, problems = check_layers.read_table("intarsia_folder(a DEPS b)\nintarsia_folder(b TORCH)\nintarsia_folder(c DEPS b)\n")
        self.assertEqual(len(problems), 2, problems)

    def test_refuses_an_empty_table(self):
        self.assertEqual(len(check_layers.read_table("add_library(x)")[1]), 1)


class Words(unittest.TestCase):
    def found(self, text, path="intarsia/plan/a.cc"):
        with Tree({path: text}) as root:
            return [p for p in check_words.check(root)[0] if p.startswith(path)]

    def test_refuses_calls_that_end_or_print(self):
        for call in ("TORCH_CHECK(x);", "assert(x);", "abort();", "std::abort();", "exit(1);", "::exit(1);", "_exit(1);", "std::exit(2);",
                     'printf("x");', 'std::fprintf(stderr, "x");', 'puts("x");'):
            self.assertEqual(len(self.found(f"void f() {{\n  {call}\n}}\n")), 1, call)

    def test_allows_what_only_looks_like_them(self):
        for text in ("communicator.abort(reason);", "virtual void abort(const std::string& reason) = 0;", "static_assert(true);",
                     "on_exit_(1);", "// printf(x)", 's = "exit(1)";', "std::snprintf(b, n, f);", 'x = R"(abort())";', "at_exit(f);"):
            self.assertEqual(self.found(text + "\n"), [], text)

    def test_allows_a_forked_rank_to_end(self):
        self.assertEqual(self.found("_exit(1);\n", "intarsia/launch/a.cc"), [])
        self.assertEqual(len(self.found("exit(1);\n", "intarsia/launch/a.cc")), 1)

    def test_leaves_unit_tests_alone(self):
        for path in ("intarsia/plan/a_test.cc", "intarsia/plan/testing_a.h"):
            self.assertEqual(self.found("abort();\n", path), [])

    def test_refuses_using_namespace_in_headers_only(self):
        self.assertEqual(len(self.found("using namespace std;\n", "intarsia/plan/a.h")), 1)
        self.assertEqual(self.found("using namespace std;\n"), [])

    def test_refuses_second_words_but_not_in_readers(self):
        self.assertEqual(len(self.found("int partition_size;\n")), 1)
        self.assertEqual(self.found("std::partition(a, b, f);\n"), [])
        self.assertEqual(self.found("int reduce_bucket_size;\n", "intarsia/config/a.cc"), [])

    def test_refuses_unfinished_work_and_machine_paths(self):
        self.assertEqual(len(self.found("// TO" "DO: later\n")), 1)
        for path in ("work/x", "root/x", "home/x", "tmp/x"):
            self.assertEqual(len(self.found(f'open("/{path}");\n')), 1, path)
        self.assertEqual(self.found('open(base + "/x/" "tmp/x");  // a/home/x\n'), [])

    def test_refuses_long_files(self):
        self.assertEqual(len(self.found("\n" * 801)), 1)
        self.assertEqual(self.found("\n" * 800), [])

    def test_keeps_line_numbers_when_blanking(self):
        code = code_only('a /* x\n y */ b\nR"(\n\n)" c "d\\"e" \'f\' 1\'000\'000\n')
        self.assertEqual(code.count("\n"), 5)
        self.assertIn("1'000'000", code)
        for gone in ("x", "d", "f"):
            self.assertNotIn(gone, code)


class Docs(unittest.TestCase):
    def found(self, text):
        with Tree({"docs/flow.md": text, "intarsia/base/text.cc": "int shortest() { return 0; }\n"}) as root:
            return check_docs.check(root)

    def test_accepts_what_exists(self):
        for text in ("`intarsia/base/text.h`", "`intarsia/base/text.cc:shortest`", "`intarsia/base/text.{h,cc}`", "`intarsia/base/`",
                     "`intarsia/*/text.h`", "[x](../intarsia/base/text.h)", "[x](https://example.org/a)", "```\nintarsia/gone\n```\n"):
            self.assertEqual(self.found(text + "\n"), [], text)

    def test_refuses_what_does_not(self):
        for text in ("`intarsia/base/gone.h`", "`intarsia/base/text.cc:longest`", "`intarsia/base/text.{h,py}`", "[x](gone.md)"):
            self.assertEqual(len(self.found("\n" + text + "\n")), 1, text)


if __name__ == "__main__":
    unittest.main()
