/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * host PLUGIN: a program that does not link the library loads and unloads a plugin that does, while
 * threads that have used it live on, end, and fork. The library must stay: hooks point into it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int (*call)(int);
static int (*leak)(void);
static sem_t inside, go_on;
static int bad;

static void *use_and_wait(void *arg)
{
	if (call(1) != 2 || leak() != 0)
		bad = 1;
	sem_post(&inside);
	sem_wait(&go_on);
	return arg;
}

/* Load, use in a thread, unload under it, end the thread. 0 or the step that failed. */
static int round_of(const char *file)
{
	void *plugin = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	pthread_t t;
	int status;
	pid_t pid;

	if (!plugin) {
		printf("%s\n", dlerror());
		return 1;
	}
	*(void **)&call = dlsym(plugin, "plugin_call");
	*(void **)&leak = dlsym(plugin, "plugin_leak");
	if (!call || !leak || call(41) != 42)
		return 2;
	if (pthread_create(&t, NULL, use_and_wait, NULL))
		return 3;
	sem_wait(&inside);
	if (dlclose(plugin))
		return 4;
	pid = fork();
	if (pid == 0)
		_exit(0);
	if (waitpid(pid, &status, 0) != pid || status)
		return 5;
	sem_post(&go_on);
	if (pthread_join(t, NULL) || bad)
		return 6;
	return 0;
}

int main(int argc, char **argv)
{
	int step;

	if (argc != 2 || sem_init(&inside, 0, 0) || sem_init(&go_on, 0, 0))
		return 2;
	for (int i = 0; i < 20; i++) {
		step = round_of(argv[1]);
		if (step) {
			printf("round %d, step %d\n", i, step);
			return 1;
		}
	}
	return 0;
}
