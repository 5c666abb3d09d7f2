# scaffolding_bench: the harness in benchmarks/ and every *_bench.cpp beside the code it times.
add_executable(scaffolding_bench benchmarks/bench.cpp ${sf_benches})
target_compile_options(scaffolding_bench PRIVATE ${SF_WARNINGS})
target_link_libraries(scaffolding_bench PRIVATE scaffolding OpenMP::OpenMP_CXX)
