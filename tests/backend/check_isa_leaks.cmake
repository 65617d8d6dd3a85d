# cmake -DOBJDUMP=objdump -DARCH=x86|arm -P check_isa_leaks.cmake LIBRARY.a …
#
# Fails if an object of the static libraries uses instructions that not every CPU has and is not one of the files
# that are dispatched to, or if one of those defines a weak symbol, which the linker could pick for common code.
#   x86  VEX- or EVEX-coded instructions and tiles: avx2_*, avxvnni_*, avx512_* and amx_* files
#   arm  dot products, matrix multiplication, bfloat16, atomics of ARMv8.1: neon_* files
# Fails too if it sees no such instruction in the files of a kind: then the check itself is
# broken.

if(ARCH STREQUAL "arm")
  set(families neon)
  set(wide_instruction
    "\t(([su]|us|su)dot|([su]|us)mmla|bf(dot|mmla|cvt)[a-z0-9]*|(cas|swp|ldadd|ldset|ldclr)[a-z]*)\t[^\n]*")
else()
  set(families avx2 avxvnni avx512 amx)
  set(wide_instruction
    "\t((v|tile|tdp|ldtilecfg|sttilecfg)[a-z0-9]* [^\n]*|[^\n]*%([yz]mm|tmm|k[0-7])[^\n]*)")
endif()
string(JOIN "|" wide ${families})
set(wide "^(${wide})_")
set(seen)
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
  string(REGEX MATCHALL "[^\n]*file format[^\n]*|${wide_instruction}" lines "${code}")
  set(file "")
  set(file_is_wide FALSE)
  foreach(line IN LISTS lines)
    if(line MATCHES "^(.*):  *file format")
      set(file "${CMAKE_MATCH_1}")
      set(file_is_wide FALSE)
      if(file MATCHES "${wide}")
        set(file_is_wide TRUE)
        set(family "${CMAKE_MATCH_1}")
      endif()
    elseif(line MATCHES "\tv(err|erw|mcall|mlaunch|mresume|mxoff)")
      continue()
    elseif(file_is_wide)
      list(APPEND seen ${family})
    else()
      message(FATAL_ERROR "${library}: ${file}: wide instruction:${line}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES seen)

  string(REGEX MATCHALL "[^\n]*file format[^\n]*|[0-9a-f]+ [ !ug]?w[^\n]*" lines "${symbols}")
  foreach(line IN LISTS lines)
    if(line MATCHES "^(.*):  *file format")
      set(file "${CMAKE_MATCH_1}")
    elseif(file MATCHES "${wide}" AND NOT line MATCHES "\\*UND\\*")
      message(FATAL_ERROR "${library}: ${file}: weak symbol: ${line}")
    endif()
  endforeach()
endforeach()
foreach(family ${families})
  if(NOT family IN_LIST seen)
    message(FATAL_ERROR "no wide instruction found in any ${family}_* file: is the check broken?")
  endif()
endforeach()
