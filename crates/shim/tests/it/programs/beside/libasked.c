/* Is found by whoever has this directory in its search path. */
int asked(void);

int asked(void)
{
	return 1;
}
