// Uses an allocator of another library.
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((weak)) void **ibv_get_device_list(int *count);

int main(void) {
    int count;
    if (ibv_get_device_list)
        ibv_get_device_list(&count);
    char *small = strdup("small"), *pages = NULL, *odd = memalign(64, 8192);
    if (posix_memalign((void **)&pages, 4096, 8192))
        return 1;
    strcpy(pages, "pages");
    strcpy(odd, "odd");
    small = realloc(small, 100000);
    pages = realloc(pages, 100000);
    odd = realloc(odd, 100);
    printf("%s %s %s %d\n", small, pages, odd, malloc_usable_size(pages) >= 100000);
    free(small);
    free(pages);
    free(odd);
    free(memalign(4096, 4096));
    return 0;
}
