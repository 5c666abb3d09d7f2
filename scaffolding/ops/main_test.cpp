#include <gtest/gtest.h>

#include <iostream>

#include "scaffolding/ops/op_listing.h"

// Read by AddressSanitizer where it is linked in: one allocation of gigabytes is a bug of an op, not a wish.
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=4096:detect_stack_use_after_return=1";
}

//   scaffolding_tests [GoogleTest flags]
//   scaffolding_tests --dump-samples FOLDER   every op's samples, for tests/golden/make_golden.py
//   scaffolding_tests --table FILE            writes docs/ops.md
//   scaffolding_tests --env-table FILE        writes docs/env.md
//   scaffolding_tests --autocast-table FILE   writes docs/autocast.md
//   scaffolding_tests --bench [NAME]          times the samples of every op (whose name contains NAME)
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc == 1) return RUN_ALL_TESTS();
  std::string command = argv[1];
  try {
    if (argc == 3 && command == "--dump-samples") return sf::test::dump_samples(argv[2]), 0;
    if (argc == 3 && command == "--table") return sf::test::write_table(argv[2]), 0;
    if (argc <= 3 && command == "--bench") return sf::test::time_samples(argc == 3 ? argv[2] : ""), 0;
    if (argc == 3 && command == "--env-table") return sf::test::write_environment(argv[2]), 0;
    if (argc == 3 && command == "--autocast-table") return sf::test::write_autocast(argv[2]), 0;
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
  std::cerr << "usage: scaffolding_tests [--dump-samples FOLDER | --table FILE | --env-table FILE | --autocast-table "
               "FILE | --bench [NAME] |\n"
               "                          GoogleTest flags]\n";
  return 2;
}
