"""without_memory_reads.py PROGRAM ARGUMENTS...: runs it where the system forbids process_vm_readv, as some containers do."""

import ctypes
import os
import platform
import struct
import sys

NUMBER = {"x86_64": 310, "aarch64": 270}[platform.machine()]
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL_WITH = 0x7fff0000, 0x00050000
EPERM = 1

program = b"".join(struct.pack("HBBI", *instruction) for instruction in (
    (LOAD, 0, 0, 0),  # the number of the system call
    (JUMP_IF_EQUAL, 0, 1, NUMBER),
    (RETURN, 0, 0, FAIL_WITH | EPERM),
    (RETURN, 0, 0, ALLOW)))


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


libc = ctypes.CDLL(None, use_errno=True)
for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(Filter(len(program) // 8, program)), 0, 0)):
    if libc.prctl(*arguments) != 0:
        sys.exit("prctl: " + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
