"""The system calls of a container's programs: a list of what programs need, and an error for everything else.

It allows what Docker's own profile allows to a container without capabilities (https://docs.docker.com/engine/security/
seccomp/), on every engine alike, but for what only an attack needs: io_uring, looking into other processes, old
interfaces of the processor, and sockets other than those of the machine and of IP; AF_VSOCK would reach the host of a
virtual machine. Landlock is allowed.
"""

import json

_ALLOWED = """
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close close_range
open openat openat2 creat dup dup2 dup3 pipe pipe2 fcntl flock ioctl fsync fdatasync sync syncfs sync_file_range
sendfile splice tee vmsplice copy_file_range readahead fadvise64 fallocate truncate ftruncate memfd_create
stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2 getdents getdents64 getcwd chdir fchdir
mkdir mkdirat rmdir rename renameat renameat2 link linkat unlink unlinkat symlink symlinkat readlink readlinkat
mknod mknodat chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat umask utime utimes utimensat futimesat
getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr getxattrat listxattrat
setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr setxattrat removexattrat
inotify_init inotify_init1 inotify_add_watch inotify_rm_watch name_to_handle_at
select pselect6 poll ppoll epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime
io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents
socketpair bind listen accept accept4 connect shutdown getsockname getpeername getsockopt setsockopt
sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg
mmap munmap mremap mprotect madvise mincore msync mlock mlock2 mlockall munlock munlockall brk membarrier mseal
pkey_alloc pkey_free pkey_mprotect map_shadow_stack cachestat
shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
futex futex_waitv futex_wake futex_wait futex_requeue set_robust_list get_robust_list rseq
fork vfork execve execveat exit exit_group wait4 waitid kill tkill tgkill pidfd_open pidfd_send_signal
rt_sigaction rt_sigprocmask rt_sigpending rt_sigqueueinfo rt_tgsigqueueinfo rt_sigreturn rt_sigsuspend
rt_sigtimedwait sigaltstack restart_syscall pause alarm getitimer setitimer
nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times
timer_create timer_settime timer_gettime timer_getoverrun timer_delete
getpid getppid gettid getpgid getpgrp setpgid getsid setsid set_tid_address
getuid geteuid getresuid getgid getegid getresgid getgroups setuid setreuid setresuid setfsuid
setgid setregid setresgid setfsgid setgroups capget capset prctl arch_prctl
getrlimit setrlimit getrusage sysinfo uname getrandom getcpu getpriority setpriority ioprio_get ioprio_set
sched_yield sched_getaffinity sched_setaffinity sched_getattr sched_setattr sched_getparam sched_setparam
sched_getscheduler sched_setscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval
seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self process_mrelease riscv_hwprobe
"""
_SOCKET_FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
# From linux/sched.h: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET.
_NEW_NAMESPACES = 0x7E02_0000
_ENOSYS = 38


def seccomp_option() -> str:
    """The profile as an option of a container. Programs of another architecture, 32-bit ones too, do not run."""
    rules = [
        {"names": _ALLOWED.split(), "action": "SCMP_ACT_ALLOW"},
        *(_allow("socket", family) for family in _SOCKET_FAMILIES.values()),
        # The ordinary personality, and the question which one a process has.
        *(_allow("personality", persona) for persona in (0, 0xFFFF_FFFF)),
        _allow("prlimit64", 0),  # of this process, not of another one
        _allow("clone", _NEW_NAMESPACES, "SCMP_CMP_MASKED_EQ"),
        # Its flags are in memory, where a filter cannot read them; C libraries use clone where it is missing.
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
    ]
    return f"seccomp={json.dumps({'defaultAction': 'SCMP_ACT_ERRNO', 'syscalls': rules})}"


def _allow(name: str, value: int, comparison: str = "SCMP_CMP_EQ") -> dict[str, object]:
    argument = {"index": 0, "value": value, "op": comparison}
    return {"names": [name], "action": "SCMP_ACT_ALLOW", "args": [argument]}
