/*
 * What programs get that open libibverbs by dlopen: its symbols with its versions, which they ask for by dlvsym. Each goes to
 * the function of the same name, without a version, in the library that is loaded before the program's own.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "symbols.h"

static const char *const names[] = { NAMES };

#define COUNT (sizeof names / sizeof *names)

/* Where the code below goes. */
__attribute__((visibility("hidden"), used)) void *facade_slots[COUNT];

#if defined(__x86_64__)
#define GO(index) "endbr64\n jmp *facade_slots+8*" #index "(%rip)\n"
#elif defined(__aarch64__)
#define GO(index) \
	"adrp x16, facade_slots+8*" #index "\n" \
	"ldr x16, [x16, #:lo12:facade_slots+8*" #index "]\n" \
	"br x16\n"
#else
#error "of this processor nothing is known here"
#endif

#define TRAMPOLINE(index, name, version) \
	".globl facade_" #index "\n" \
	".type facade_" #index ", %function\n" \
	"facade_" #index ":\n" GO(index) \
	".size facade_" #index ", . - facade_" #index "\n" \
	".symver facade_" #index ", " name "@@" version ", remove\n"

__asm__(".text\n" CODE);

static void missing(void)
{
	fputs("vervain: this function of libibverbs is not there\n", stderr);
	abort();
}

__attribute__((constructor)) static void fill(void)
{
	Dl_info own, found;
	void *function;
	size_t index;

	if (!dladdr(names, &own))
		abort();
	for (index = 0; index < COUNT; index++) {
		function = dlsym(RTLD_DEFAULT, names[index]);
		/* This library's own would go to itself for ever. */
		if (!function || !dladdr(function, &found) || found.dli_fbase == own.dli_fbase)
			function = missing;
		facade_slots[index] = function;
	}
}
