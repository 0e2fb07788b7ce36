// Starts a program under a seccomp filter: confined SET[,SET...] PROGRAM ARGUMENTS. Calls of a set answer "operation not permitted".
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct set {
    const char *name;
    long calls[24];
};

static const struct set sets[] = {
    // What Docker's default profile refuses without capabilities, of what could matter here; clone3 apart.
    {"docker",
     {SYS_userfaultfd, SYS_unshare, SYS_setns, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_bpf,
      SYS_perf_event_open, SYS_kcmp, SYS_pidfd_getfd, SYS_process_madvise, SYS_mount, SYS_pivot_root, SYS_add_key,
      SYS_keyctl, SYS_request_key, SYS_mbind, SYS_set_mempolicy, SYS_get_mempolicy, SYS_move_pages, SYS_acct, -1}},
    // Yama without an exception, or a profile of before Linux 4.8.
    {"process_vm", {SYS_process_vm_readv, SYS_process_vm_writev, SYS_ptrace, -1}},
    {"memfd", {SYS_memfd_create, -1}},
};

static struct sock_filter filter[128];
static unsigned short count;

static void add(struct sock_filter instruction) { filter[count++] = instruction; }

static void refuse(long call, unsigned error) {
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1));
    add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    for (char *name = strtok(argv[1], ","); name; name = strtok(NULL, ",")) {
        int known = 0;
        for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
            if (strcmp(sets[i].name, name))
                continue;
            known = 1;
            for (const long *call = sets[i].calls; *call >= 0; call++)
                refuse(*call, EPERM);
        }
        if (!known)
            return 2;
        if (!strcmp(name, "docker"))
            refuse(SYS_clone3, ENOSYS);
    }
    add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    struct sock_fprog program = {.len = count, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("seccomp");
        return 2;
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
