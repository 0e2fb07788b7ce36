// What a program sees of its memory: the same with and without the library before libc, which makes much
// of it shared. Prints what it sees.
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

// There with the library: memory is shared from this call on.
__attribute__((weak)) void **ibv_get_device_list(int *count);
// Whether an address is in memory that is shared, which is told on standard error.
static int shared;

#define PAGE 4096ul
#define LEN (4ul << 20)

static void look(const void *at) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        sscanf(line, "%lx-%lx", &from, &to);
        if (from <= (unsigned long)at && (unsigned long)at < to && strstr(line, "vervain-born"))
            shared++;
    }
    fclose(maps);
}

static unsigned char *map(size_t len) {
    unsigned char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        perror("mmap");
    look(at);
    return at;
}

static size_t zeros(const unsigned char *at, size_t len) {
    size_t count = 0;
    for (size_t i = 0; i < len; i++)
        count += at[i] == 0;
    return count;
}

static unsigned long sum(const unsigned char *at, size_t len) {
    unsigned long sum = 0;
    for (size_t i = 0; i < len; i++)
        sum = sum * 31 + at[i];
    return sum;
}

static void fill(unsigned char *at, size_t len, unsigned seed) {
    for (size_t i = 0; i < len; i++)
        at[i] = seed + i / 7 + i % 13;
}

static sigjmp_buf back;

static void faulted(int signal) { siglongjmp(back, signal); }

// What storing at an address does.
static const char *storing(volatile unsigned char *at) {
    int got = sigsetjmp(back, 1);
    if (got == 0)
        *at = *at;
    return got == 0 ? "stored" : got == SIGSEGV ? "refused" : "torn";
}

// Runs a child, whose output comes first.
static void in_child(void (*work)(unsigned char *), unsigned char *at) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        work(at);
        fflush(stdout);
        _exit(7);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    printf("child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

static void check(unsigned char *at) {
    printf("child finds %lx\n", sum(at, LEN));
    fill(at, PAGE * 3, 77);
    printf("child has %lx\n", sum(at, LEN));
}

static void forks(void) {
    unsigned char *at = map(LEN);
    printf("zeros %zu\n", zeros(at, LEN));
    fill(at, LEN / 2, 1);
    in_child(check, at);
    printf("parent keeps %lx\n", sum(at, LEN));
    // A child finds what was there when it was forked.
    int go[2], done[2];
    if (pipe(go) || pipe(done))
        perror("pipe");
    fflush(stdout);
    pid_t pid = fork();
    memset(at + LEN / 4, pid == 0 ? 5 : 6, 100);
    char byte = 0;
    if (pid == 0) {
        if (read(go[0], &byte, 1) != 1)
            _exit(1);
        printf("child's own %d, then %d, then %d\n", at[LEN / 4], at[0], at[LEN - 1]);
        fflush(stdout);
        _exit(0);
    }
    at[0] = 99;
    at[LEN - 1] = 98;
    if (write(go[1], "x", 1) != 1)
        perror("write");
    waitpid(pid, NULL, 0);
    printf("parent's own %d\n", at[LEN / 4]);
    // A grandchild's are its own, too.
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        fill(at, PAGE, 3);
        in_child(check, at);
        printf("middle keeps %lx\n", sum(at, LEN));
        fflush(stdout);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    printf("parent keeps %lx\n", sum(at, LEN));
    for (int i = 0; i < 2; i++)
        close(go[i]), close(done[i]);
    printf("unmapped %d\n", munmap(at, LEN));
    printf("%s\n", storing(at));
}

static void parts(void) {
    unsigned char *at = map(LEN);
    fill(at, LEN, 2);
    printf("hole %d\n", munmap(at + LEN / 4, LEN / 4));
    printf("%s %s %s\n", storing(at + LEN / 4 - 1), storing(at + LEN / 4), storing(at + LEN / 2));
    // Something else in its place.
    unsigned char *in = mmap(at + LEN / 4, PAGE * 5, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    printf("there %d, zeros %zu\n", in == at + LEN / 4, zeros(in, PAGE * 5));
    unsigned char *over = mmap(at, PAGE * 3, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    printf("over %d, zeros %zu, %lx\n", over == at, zeros(at, PAGE * 3), sum(at, LEN / 4));
    mprotect(at + LEN / 2, PAGE * 2, PROT_READ);
    mprotect(at + LEN - PAGE, PAGE, PROT_NONE);
    fflush(stdout);
    pid_t pid = fork();
    printf("%s %s %s %s\n", storing(at + LEN / 2), storing(at + LEN / 2 + PAGE * 2),
           storing(at + LEN - PAGE), storing(at + LEN / 4 + PAGE * 5));
    printf("%lx\n", sum(at + LEN / 2, LEN / 2 - PAGE));
    if (pid == 0) {
        printf("%d\n", mprotect(at + LEN / 2, LEN / 2, PROT_READ | PROT_WRITE));
        fill(at + LEN / 2, LEN / 2, 9);
        fflush(stdout);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    printf("%lx\n", sum(at + LEN / 2, LEN / 2 - PAGE));
    printf("all %d\n", munmap(at, LEN));
    printf("bad %d %d\n", munmap(at + 1, PAGE), munmap(at, 0));
}

static void moves(void) {
    unsigned char *at = map(LEN);
    fill(at, LEN, 3);
    at = mremap(at, LEN, LEN * 2, MREMAP_MAYMOVE);
    printf("grown %lx, zeros %zu\n", sum(at, LEN), zeros(at + LEN, LEN));
    fill(at + LEN, LEN, 4);
    at = mremap(at, LEN * 2, LEN / 2, 0);
    printf("cut %lx %s\n", sum(at, LEN / 2), storing(at + LEN / 2));
    at = mremap(at, LEN / 2, LEN, MREMAP_MAYMOVE);
    printf("grown again %lx, zeros %zu\n", sum(at, LEN / 2), zeros(at + LEN / 2, LEN / 2));
    fill(at, LEN, 5);
    // The first half grows, away from the second.
    unsigned char *half = mremap(at, LEN / 2, LEN, MREMAP_MAYMOVE);
    printf("away %d %lx, zeros %zu\n", half != at, sum(half, LEN / 2), zeros(half + LEN / 2, LEN / 2));
    memset(half + LEN / 2, 1, LEN / 2);
    printf("second %lx %s\n", sum(at + LEN / 2, LEN / 2), storing(at));
    unsigned char *place = map(LEN);
    fill(place, LEN, 6);
    unsigned char *put = mremap(half, LEN / 2, LEN / 4, MREMAP_MAYMOVE | MREMAP_FIXED, place + PAGE);
    printf("put %d %lx\n", put == place + PAGE, sum(place, LEN));
    in_child(check, place);
    printf("parent keeps %lx\n", sum(place, LEN));
    printf("odd %d\n", mremap(place + 1, LEN, LEN * 2, MREMAP_MAYMOVE) == MAP_FAILED);
    printf("%d %d\n", munmap(place, LEN), munmap(at + LEN / 2, LEN / 2));
}

static void discards(void) {
    unsigned char *at = map(LEN);
    fill(at, LEN, 8);
    printf("%d\n", madvise(at + PAGE, PAGE * 9, MADV_DONTNEED));
    printf("zeros %zu, %lx\n", zeros(at + PAGE, PAGE * 9), sum(at, LEN));
    printf("%d\n", madvise(at, LEN, MADV_DONTNEED));
    printf("zeros %zu\n", zeros(at, LEN));
    fill(at, LEN, 8);
    munmap(at + PAGE, PAGE);
    printf("%d\n", madvise(at, PAGE * 4, MADV_DONTNEED));
    printf("zeros %zu %zu\n", zeros(at, PAGE), zeros(at + PAGE * 2, PAGE * 4));
    // Its bytes are gone or not.
    printf("%d\n", madvise(at + LEN / 2, LEN / 2, MADV_FREE));
    fill(at + LEN / 2, LEN / 2, 9);
    printf("%lx\n", sum(at + LEN / 2, LEN / 2));
    printf("%d %d\n", madvise(at + 1, PAGE, MADV_DONTNEED), madvise(at, PAGE, 12345));
    munmap(at, LEN);
}

static void heaps(void) {
    void *pages[6] = {0};
    printf("%d\n", posix_memalign(&pages[0], PAGE, 3 * PAGE + 1));
    pages[1] = aligned_alloc(PAGE * 16, PAGE * 32);
    pages[2] = memalign(PAGE, PAGE);
    pages[3] = valloc(PAGE * 7);
    pages[4] = pvalloc(PAGE * 7 + 1);
    printf("%d\n", posix_memalign(&pages[5], 2 << 20, 3 << 20));
    size_t lens[] = {3 * PAGE + 1, PAGE * 32, PAGE, PAGE * 7, PAGE * 8, 3 << 20};
    size_t aligns[] = {PAGE, PAGE * 16, PAGE, PAGE, PAGE, 2 << 20};
    for (int i = 0; i < 6; i++) {
        look(pages[i]);
        fill(pages[i], lens[i], i);
        printf("%d %d %lx\n", (uintptr_t)pages[i] % aligns[i] == 0,
               malloc_usable_size(pages[i]) >= lens[i], sum(pages[i], lens[i]));
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 6; i++) {
            printf("%lx\n", sum(pages[i], lens[i]));
            memset(pages[i], 0xee, lens[i]);
            free(pages[i]);
        }
        void *more = aligned_alloc(PAGE, PAGE * 9);
        memset(more, 1, PAGE * 9);
        more = realloc(more, PAGE * 20);
        printf("%lx\n", sum(more, PAGE * 9));
        free(more);
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    printf("child %d\n", status);
    pages[0] = realloc(pages[0], PAGE * 50);
    printf("%lx\n", sum(pages[0], lens[0]));
    pages[1] = realloc(pages[1], PAGE * 20);
    printf("%lx\n", sum(pages[1], PAGE * 20));
    pages[2] = reallocarray(pages[2], 100, PAGE);
    printf("%lx\n", sum(pages[2], PAGE));
    volatile size_t too_many = SIZE_MAX / 2;
    printf("%d\n", reallocarray(pages[2], too_many, 4) == NULL);
    pages[3] = realloc(pages[3], 10);
    printf("%lx\n", sum(pages[3], 10));
    pages[4] = realloc(pages[4], PAGE * 8 - 1);
    printf("%lx\n", sum(pages[4], PAGE * 8 - 1));
    for (int i = 0; i < 6; i++)
        free(pages[i]);
    free(NULL);
    printf("%d\n", posix_memalign(&pages[0], 3, PAGE));
    printf("%d\n", posix_memalign(&pages[0], PAGE * 3, PAGE));
    // More than there are files for, and each time anew.
    static void *many[1000];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 1000; i++) {
            many[i] = memalign(PAGE, PAGE * 2);
            *(int *)many[i] = i;
        }
        int right = 0;
        for (int i = 0; i < 1000; i++) {
            right += *(int *)many[i] == i;
            free(many[i]);
        }
        printf("right %d\n", right);
    }
}

static volatile int stop;

static void *churn(void *arg) {
    (void)arg;
    while (!stop) {
        unsigned char *at = mmap(NULL, LEN / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        at[0] = at[LEN / 2 - 1] = 1;
        unsigned char *pages = memalign(PAGE, PAGE * 3);
        memset(pages, 2, PAGE * 3);
        madvise(at, LEN / 2, MADV_DONTNEED);
        if (at[0] != 0)
            printf("not discarded\n");
        munmap(at, LEN / 2);
        free(pages);
    }
    return NULL;
}

static void threads(void) {
    pthread_t all[3];
    unsigned char *at = map(LEN);
    for (int i = 0; i < 3; i++)
        pthread_create(&all[i], NULL, churn, NULL);
    int right = 0;
    for (int i = 0; i < 20; i++) {
        at[i] = i;
        pid_t pid = fork();
        if (pid == 0) {
            int seen = at[i] == i && at[i + 1] == 0;
            memset(at, 0xff, 100);
            unsigned char *own = memalign(PAGE, PAGE * 4);
            memset(own, 1, PAGE * 4);
            free(own);
            _exit(seen);
        }
        int status;
        waitpid(pid, &status, 0);
        right += WIFEXITED(status) && WEXITSTATUS(status) == 1 && at[i + 1] == 0;
    }
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(all[i], NULL);
    printf("right %d\n", right);
    munmap(at, LEN);
}

static volatile int handled;

static void maps_too(int signal) {
    (void)signal;
    unsigned char *at = mmap(NULL, LEN / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    at[5] = 1;
    munmap(at, LEN / 2);
    handled++;
}

static void signals(void) {
    struct sigaction action = {.sa_handler = maps_too};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    while (handled < 200)
        munmap(mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), LEN);
    setitimer(ITIMER_REAL, &never, NULL);
    printf("handled\n");
}

static void descriptors(void) {
    unsigned char *at = map(LEN), *pages = memalign(PAGE, PAGE * 8);
    fill(at, LEN, 4);
    fill(pages, PAGE * 8, 5);
    int fd = open("/dev/null", O_RDONLY);
    printf("descriptor %d\n", fd);
    // As daemons do; what has their numbers next is somebody else's.
    char path[] = "/tmp/pages-XXXXXX";
    for (int i = 3; i < 40000; i++)
        close(i);
    int file = mkstemp(path);
    unlink(path);
    if (ftruncate(file, LEN) || pwrite(file, "kept", 4, 0) != 4)
        perror("file");
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < 300; i++)
        fcntl(file, F_DUPFD, i < 150 ? 3 : (int)(limit.rlim_cur / 2 < 32768 ? limit.rlim_cur / 2 : 32768));
    in_child(check, at);
    printf("parent keeps %lx %lx\n", sum(at, LEN), sum(pages, PAGE * 8));
    printf("%d\n", madvise(at, LEN / 2, MADV_DONTNEED));
    printf("zeros %zu\n", zeros(at, LEN / 2));
    at = mremap(at, LEN, LEN * 2, MREMAP_MAYMOVE);
    printf("%lx, zeros %zu\n", sum(at + LEN / 2, LEN / 2), zeros(at + LEN, LEN));
    munmap(at, LEN * 2);
    free(pages);
    char bytes[5] = {0};
    printf("%zd ", pread(file, bytes, 4, 0));
    printf("%s %d\n", bytes, fcntl(file, F_GETFD) >= 0);
}

static void limits(void) {
    struct rlimit limit = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    unsigned char *at = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(at, LEN, 4);
    printf("%lx\n", sum(at, LEN));
    munmap(at, LEN);
}

int main(void) {
    struct sigaction action = {.sa_handler = faulted};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    // Memory from before is as ever.
    unsigned char *before = map(LEN);
    void *pages = memalign(PAGE, PAGE);
    look(pages);
    int count;
    if (ibv_get_device_list)
        ibv_get_device_list(&count);
    printf("before: shared %d\n", shared);
    fill(before, LEN, 1);
    in_child(check, before);
    free(pages);
    munmap(before, LEN);
    forks();
    parts();
    moves();
    discards();
    heaps();
    threads();
    signals();
    descriptors();
    limits();
    fprintf(stderr, "shared %d\n", shared);
    return 0;
}
