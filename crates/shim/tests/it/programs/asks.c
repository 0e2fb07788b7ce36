/* Opens a library that only its own search path leads to. */
#include <dlfcn.h>
#include <stdio.h>

int main(void)
{
	void *library = dlopen("libasked.so", RTLD_NOW);

	printf("%s\n", library && dlsym(library, "asked") ? "found" : dlerror());
	return 0;
}
