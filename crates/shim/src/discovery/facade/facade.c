/*
 * libibverbs' symbols with its versions: for programs that open it by dlopen and ask for them by dlvsym, and for programs that
 * are linked with it on machines that have none. Each goes to the function of the same name, without a version, in the library
 * that is loaded before the program's own.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Drivers' libraries (libmlx5) look here when an object of theirs is destroyed, and there are none. */
__attribute__((used)) bool facade_disassociate;
__asm__(".symver facade_disassociate, verbs_allow_disassociate_destroy@@IBVERBS_PRIVATE_34, remove");

/* What only drivers call, for devices of theirs; or the library is another one, or was not loaded before the program's own. */
static void missing(void)
{
	fputs("vervain: this function of libibverbs is not there: is the program started by `vervain run`?\n", stderr);
	abort();
}

/* Drivers' libraries tell of themselves when they are loaded. */
static void nothing(void)
{
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
			function = strstr(names[index], "register_driver") ? nothing : missing;
		facade_slots[index] = function;
	}
}
