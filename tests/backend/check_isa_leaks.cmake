# cmake -DOBJDUMP=objdump -P check_isa_leaks.cmake LIBRARY.a …
#
# Fails if an object of the static libraries uses VEX- or EVEX-coded instructions or tiles and is not one of
# the avx2_*, avxvnni_*, avx512_* and amx_* files, or if one of those defines a weak symbol, which the linker
# could pick for common code. Fails too if it sees no wide instruction in avx2_*, avx512_* or amx_* files at all:
# then the check itself is broken.

set(families avx2 avxvnni avx512 amx)
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
  string(REGEX MATCHALL
    "[^\n]*file format[^\n]*|\t((v|tile|tdp|ldtilecfg|sttilecfg)[a-z0-9]* [^\n]*|[^\n]*%([yz]mm|tmm|k[0-7])[^\n]*)"
    lines "${code}")
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
foreach(family avx2 avxvnni avx512 amx)
  if(NOT family IN_LIST seen)
    message(FATAL_ERROR "no wide instruction found in any ${family}_* file: is the check broken?")
  endif()
endforeach()
