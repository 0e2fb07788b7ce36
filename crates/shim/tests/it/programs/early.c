// Frees first where the linker does: the text of an error, in its search for a symbol.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

// Before the constructors of libraries.
static void first(void) {
    for (int i = 0; i < 5; i++)
        if (dlsym(RTLD_DEFAULT, "there_is_no_such_function"))
            _Exit(1);
}

__attribute__((section(".preinit_array"), used)) static void (*const preinit)(void) = first;

int main(void) {
    first();
    printf("%d\n", dlopen("/no/such/library.so", RTLD_NOW) == NULL);
    first();
    return 0;
}
