# cmake -DOBJDUMP=objdump -P check_isa_leaks.cmake LIBRARY.a …
#
# Fails if an object of the static libraries uses VEX- or EVEX-coded instructions and is not one of
# the avx2_* files, or if an avx2_* file defines a weak symbol, which the linker could pick for
# common code. Fails too if it sees no AVX2 at all: then the check itself is broken.

set(wide_files 0)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  set(library "${CMAKE_ARGV${i}}")
  if(NOT library MATCHES "\\.a$")
    continue()
  endif()
  execute_process(COMMAND ${OBJDUMP} -d --no-show-raw-insn ${library}
    OUTPUT_VARIABLE code COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${OBJDUMP} -t ${library} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)

  # One list item per line: brackets and semicolons would break the list.
  string(REGEX REPLACE "[][;]" " " code "${code}")
  string(REGEX REPLACE "[][;]" " " symbols "${symbols}")
  string(REGEX MATCHALL "[^\n]*file format[^\n]*|\t(v[a-z0-9]+ [^\n]*|[^\n]*%[yz]mm[^\n]*)" lines "${code}")
  set(file "")
  foreach(line IN LISTS lines)
    if(line MATCHES "^(.*):  *file format")
      set(file "${CMAKE_MATCH_1}")
    elseif(line MATCHES "\tv(err|erw|mcall|mlaunch|mresume|mxoff)")
      continue()
    elseif(file MATCHES "^avx2_")
      set(wide_files 1)
    else()
      message(FATAL_ERROR "${library}: ${file}: wide instruction:${line}")
    endif()
  endforeach()

  string(REGEX MATCHALL "[^\n]*file format[^\n]*|[0-9a-f]+ [ !ug]?w[^\n]*" lines "${symbols}")
  foreach(line IN LISTS lines)
    if(line MATCHES "^(.*):  *file format")
      set(file "${CMAKE_MATCH_1}")
    elseif(file MATCHES "^avx2_" AND NOT line MATCHES "\\*UND\\*")
      message(FATAL_ERROR "${library}: ${file}: weak symbol: ${line}")
    endif()
  endforeach()
endforeach()
if(NOT wide_files)
  message(FATAL_ERROR "no AVX2 instruction found in any avx2_* file: is the check broken?")
endif()
