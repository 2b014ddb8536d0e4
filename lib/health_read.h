/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * health_read.h - reads CPU, memory and pressure of host and cgroups from proc and sys.
 *
 * Groups are found through proc/self/cgroup and proc/self/mountinfo, both below a root that a
 * test can choose: at the first read, each 30 s (8 reads at least), after a fork, and when a kept
 * file fails. Only levels that have a limit are kept, 8 at most, the innermost first.
 * Group paths above 1023 bytes and groups that no mount shows are left to the host's numbers.
 *
 * Threads.  One reader, one thread at a time.
 * Fork.     The child may go on: files stay open, and are looked for anew at the next read.
 *           If another thread was in a read at the fork, a few file descriptors may be lost.
 * Memory.   None but the struct; about 24 kB of stack when groups are looked for, else 6 kB.
 * Cost.     One pread a file, 2 to 6 us each; about 6 files on a host, 4 more a limited level.
 *           Looking for groups: about 0.3 ms.
 */
#ifndef FCI_HEALTH_READ_H
#define FCI_HEALTH_READ_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <fcguard/health.h>

#define FCI_HEALTH_LEVELS  8u
#define FCI_HEALTH_CPUS    2048u /* a CPU with a higher number is not told apart */
#define FCI_HEALTH_FIND_NS (30 * UINT64_C(1000000000))

/* One group with a CPU quota. v2 has quota and period in one file (period_fd is -1), and its
 * usage in stat_fd (usage_fd is -1). */
struct fci_cpu_level {
	int limit_fd;
	int period_fd;
	int usage_fd;
	int stat_fd;
	bool v2;
	bool own;     /* usage_fd is proc/self/stat: this process alone, a lower bound */
	bool moved;   /* usage_ns holds an earlier reading */
	bool counted; /* periods and throttled hold an earlier reading */
	uint64_t usage_ns;
	uint64_t periods;
	uint64_t throttled;
};

/* One group with a memory limit. high_fd is memory.high, v2 only. */
struct fci_memory_level {
	int limit_fd;
	int high_fd;
	int usage_fd;
	int stat_fd;
	bool v2;
};

struct fci_health_read {
	int root_fd;
	int stat_fd;
	int meminfo_fd;
	int loadavg_fd;
	int psi_fd[3];          /* cpu, memory, io */
	bool psi_group;         /* psi_fd are the group's */
	bool found;             /* the groups were looked for */
	bool again;             /* a kept file failed: look again */
	bool host_moved;        /* host_idle and host_total hold an earlier reading */
	bool all_cpus;          /* every CPU in proc/stat is allowed: its first line is enough */
	pid_t pid;              /* who looked: proc/self is somebody else after a fork */
	uint32_t cpus;          /* allowed and present; 0 = not known */
	uint32_t counted_cpus;  /* in the last reading of proc/stat */
	uint32_t cpu_levels;
	uint32_t memory_levels;
	uint32_t reads;         /* since the groups were found */
	uint64_t found_ns;
	uint64_t last_ns;       /* the previous read */
	uint64_t host_idle;
	uint64_t host_total;
	uint64_t host_memory_bytes; /* 0 = not known */
	uint64_t allowed[FCI_HEALTH_CPUS / 64];
	struct fci_cpu_level cpu[FCI_HEALTH_LEVELS];
	struct fci_memory_level memory[FCI_HEALTH_LEVELS];
};

/* root NULL is "/". Returns 0 or -errno of opening root. */
int fci_health_read_init(struct fci_health_read *r, const char *root);
void fci_health_read_fini(struct fci_health_read *r);

/*
 * Read all, an fc_health_fn with the reader as arg. CPU and throttling are averages since the
 * previous read, the first read has none. Always 0: what is missing is left out.
 */
int fci_health_read(void *arg, struct fc_health_sample *ret);

/* Read memory again, over what *s says of it. */
void fci_health_read_memory(struct fci_health_read *r, struct fc_health_sample *s);

#endif /* FCI_HEALTH_READ_H */
