// An allocator that knows what it has given out: as a library of its own, it is the next after ours.
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned char arena[64 << 20] __attribute__((aligned(4096)));
static size_t used;

struct head {
    size_t len;
    uint64_t magic;
};

void *memalign(size_t align, size_t len) {
    align = align < 16 ? 16 : align;
    size_t at = __atomic_fetch_add(&used, len + 2 * align + 32, __ATOMIC_RELAXED);
    if (at + len + 2 * align + 32 > sizeof arena)
        abort();
    uintptr_t start = ((uintptr_t)arena + at + sizeof(struct head) + align - 1) & ~(align - 1);
    struct head *head = (struct head *)start - 1;
    *head = (struct head){len, 0xfeedfacecafebeef};
    return (void *)start;
}

static struct head *head_of(void *start) {
    struct head *head = (struct head *)start - 1;
    unsigned char *byte = start;
    if (byte < arena || byte >= arena + sizeof arena || head->magic != 0xfeedfacecafebeef) {
        (void)!write(2, "not mine\n", 9);
        abort();
    }
    return head;
}

void *malloc(size_t len) { return memalign(16, len); }
void free(void *start) {
    if (start)
        head_of(start)->magic = 0xfeedfacecafebeef;
}
void *calloc(size_t count, size_t each) { return memset(malloc(count * each), 0, count * each); }
void *realloc(void *start, size_t len) {
    void *made = malloc(len);
    if (start) {
        size_t old = head_of(start)->len;
        memcpy(made, start, old < len ? old : len);
    }
    return made;
}
void *aligned_alloc(size_t align, size_t len) { return memalign(align, len); }
void *valloc(size_t len) { return memalign(4096, len); }
int posix_memalign(void **to, size_t align, size_t len) {
    *to = memalign(align, len);
    return 0;
}
size_t malloc_usable_size(void *start) { return start ? head_of(start)->len : 0; }
