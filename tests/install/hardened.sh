#!/usr/bin/env bash
# Says what of a release's hardening a program lacks. usage: hardened.sh PROGRAM
set -euo pipefail
program=$1
elf=$(LC_ALL=C readelf -Whlds "$program")

failed=0
shows() { grep -qE -- "$2" <<<"$elf" || { echo "$program is not hardened: $1" >&2; failed=1; }; }
shows "PIE" '^ *Type: +DYN'
shows "PIE (flag)" 'FLAGS_1.* PIE'
shows "RELRO" '^ *GNU_RELRO '
shows "full RELRO (now)" 'FLAGS_1.* NOW'
shows "stack not executable" '^ *GNU_STACK .* RW +0x'
shows "stack protector" '__stack_chk_fail'
shows "_FORTIFY_SOURCE" ' __[a-z]+_chk(@|$)'
# A program's note of control-flow protection is there only where the startup files of the C library
# have it, which Debian's have not: so the code is looked at.
elf=$(LC_ALL=C objdump -d --no-show-raw-insn --disassemble=main "$program")
[ "$(uname -m)" != x86_64 ] || shows "control-flow protection" 'endbr64'
exit "$failed"
