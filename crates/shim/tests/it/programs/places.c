/* Looks at the device's place in /sys and /dev by many of libc's functions, and says what it saw. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICE "/sys/class/infiniband/vervain0"

static void first_line(const char *how, FILE *file)
{
	char line[256] = "";

	if (!file || !fgets(line, sizeof line, file)) {
		printf("%s: %s\n", how, strerror(errno));
		return;
	}
	printf("%s: %s", how, line);
	fclose(file);
}

int main(void)
{
	char name[PATH_MAX] = "";
	struct dirent **found;
	struct statx known;
	struct stat stat_of;
	int dir, count;

	first_line("fopen", fopen(DEVICE "/node_guid", "r"));
	first_line("open", fdopen(open(DEVICE "/ports/1/link_layer", O_RDONLY), "r"));
	dir = open(DEVICE "/ports", O_RDONLY | O_DIRECTORY);
	first_line("openat", fdopen(openat(dir, "1/gid_attrs/types/0", O_RDONLY), "r"));
	printf("access: %d\n", access("/dev/infiniband/uverbs0", R_OK | W_OK));
	printf("stat: %d\n", stat("/dev/infiniband/uverbs0", &stat_of) == 0 && S_ISCHR(stat_of.st_mode));
	printf("lstat: %d\n", lstat(DEVICE, &stat_of) == 0 && S_ISLNK(stat_of.st_mode));
	printf("statx: %d\n", statx(AT_FDCWD, DEVICE, 0, STATX_TYPE, &known) == 0 && S_ISDIR(known.stx_mode));
	count = scandir("/sys/class/infiniband", &found, NULL, alphasort);
	printf("scandir: %d %s\n", count, count == 3 ? found[2]->d_name : "");
	printf("readlink: %s\n", readlink(DEVICE, name, sizeof name - 1) > 0 ? name : strerror(errno));
	printf("realpath: %s\n", realpath(DEVICE, name) ? name : strerror(errno));
	printf("realpath, new: %s\n", realpath("/sys/class/infiniband/../infiniband", NULL));
	printf("missing: %s\n", access(DEVICE "/ports/2", F_OK) ? strerror(errno) : "there");
	printf("others: %d\n", access("/sys/class/net/lo", F_OK) == 0 && access("/dev/null", W_OK) == 0);
	return 0;
}
