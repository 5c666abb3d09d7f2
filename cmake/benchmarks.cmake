# scaffolding_bench: the harness in benchmarks/ and every *_bench.cpp beside the code it times. peak.cpu.cpp, the loop
# that measures the processor, is compiled once per instruction set like the kernels.
add_executable(scaffolding_bench benchmarks/bench.cpp ${sf_benches})
target_compile_options(scaffolding_bench PRIVATE ${SF_WARNINGS})
target_link_libraries(scaffolding_bench PRIVATE scaffolding OpenMP::OpenMP_CXX)
foreach(isa ${SF_ISAS})
  add_library(sf_peak_${isa} OBJECT benchmarks/peak.cpu.cpp)
  target_include_directories(sf_peak_${isa} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(sf_peak_${isa} PRIVATE ${SF_WARNINGS} ${isa_flags_${isa}} -ffp-contract=fast)
  target_compile_definitions(sf_peak_${isa} PRIVATE SF_ISA=${isa} SF_ISA_PRIORITY=${isa_priority_${isa}})
  target_sources(scaffolding_bench PRIVATE $<TARGET_OBJECTS:sf_peak_${isa}>)
endforeach()
