/* SPDX-License-Identifier: BSD-2-Clause */
/* rules_process.c - what rules say of the whole process: groups, system bounds, health. See rules.h. */
#include <errno.h>

#include "ruled.h"
#include "rules.h"

/* The upper layer that says something: pushed over the file. */
static const struct fci_doc *says(struct fci_doc *const *layers, const struct fci_node *(*what)(const struct fci_doc *))
{
	for (int i = FCI_LAYERS; i-- > 0;)
		if (layers[i] && what(layers[i]))
			return layers[i];
	return NULL;
}

static const struct fci_node *system_node(const struct fci_doc *d)
{
	return d->system_node;
}

static const struct fci_node *health_node(const struct fci_doc *d)
{
	return d->health_node;
}

static const struct fci_rules_group *find_group(struct fci_doc *const *layers, const char *name)
{
	for (int i = FCI_LAYERS; i-- > 0;)
		for (uint32_t g = 0; layers[i] && g < layers[i]->n_groups; g++)
			if (!strcmp(layers[i]->groups[g].name, name))
				return &layers[i]->groups[g];
	return NULL;
}

static int same_group(const struct fci_rules_group *a, const struct fci_rules_group *b)
{
	if (!a || a->opts.cap != b->opts.cap || a->opts.n_members != b->opts.n_members)
		return 0;
	for (uint32_t i = 0; i < a->opts.n_members; i++) {
		const struct fc_isolate_member *x = &a->opts.members[i], *y = &b->opts.members[i];

		if (strcmp(x->name, y->name) != 0 || x->share != y->share || x->most != y->most)
			return 0;
	}
	return 1;
}

static int set_groups(struct fc *fc, struct fci_doc *const *from, struct fci_doc *const *to, struct fc_rules_error *err)
{
	for (int i = 0; i < FCI_LAYERS; i++)
		for (uint32_t g = 0; to[i] && g < to[i]->n_groups; g++) {
			const struct fci_rules_group *new = &to[i]->groups[g];
			struct fci_parse p = { .file = to[i]->file, .err = err };
			int rc;

			if (find_group(to, new->name) != new || same_group(find_group(from, new->name), new))
				continue;
			rc = fc_isolate_group(fc, new->name, &new->opts);
			if (rc < 0 && err)
				fci_rules_bad(&p, rc, new->at, "group %s cannot be changed so: %s", new->name, fc_status_text(rc));
			if (rc < 0)
				return rc;
		}
	return 0;
}

static int by_hand(struct fc *fc, uint32_t what)
{
	uint32_t hand;

	pthread_mutex_lock(&fc->setup);
	hand = fc->by_hand;
	pthread_mutex_unlock(&fc->setup);
	return (hand & what) != 0;
}

static int set_system(struct fc *fc, struct fci_doc *const *from, struct fci_doc *const *to)
{
	const struct fci_doc *a = says(from, system_node), *b = says(to, system_node);

	if (by_hand(fc, FCI_HAND_SYSTEM) || fci_node_equal(a ? a->system_node : NULL, b ? b->system_node : NULL))
		return 0;
	return fci_system_set(fc, b ? &b->system : NULL, 0);
}

/* What the file does not say is as the program made it. */
static struct fc_health_opts health_of(const struct fc *fc, const struct fci_doc *d)
{
	struct fc_health_opts o = fc->health_made;
	const struct fc_health_opts *n = &d->health;

	o.cpu_permille = n->cpu_permille ? n->cpu_permille : o.cpu_permille;
	o.throttled_permille = n->throttled_permille ? n->throttled_permille : o.throttled_permille;
	o.memory_permille = n->memory_permille ? n->memory_permille : o.memory_permille;
	o.psi_cpu_permille = n->psi_cpu_permille ? n->psi_cpu_permille : o.psi_cpu_permille;
	o.psi_memory_permille = n->psi_memory_permille ? n->psi_memory_permille : o.psi_memory_permille;
	o.psi_io_permille = n->psi_io_permille ? n->psi_io_permille : o.psi_io_permille;
	o.load1_permille = n->load1_permille ? n->load1_permille : o.load1_permille;
	o.hysteresis_permille = n->hysteresis_permille ? n->hysteresis_permille : o.hysteresis_permille;
	return o;
}

static int set_health(struct fc *fc, struct fci_doc *const *from, struct fci_doc *const *to)
{
	const struct fci_doc *a = says(from, health_node), *b = says(to, health_node);
	struct fc_health_opts o;

	if (by_hand(fc, FCI_HAND_HEALTH) || fci_node_equal(a ? a->health_node : NULL, b ? b->health_node : NULL))
		return 0;
	if (!b)
		return fci_health_change(fc, NULL, 0);
	o = health_of(fc, b);
	return fci_health_change(fc, &o, 0);
}

/* In the order of what may fail; what was done is undone. The old settings have been in force: they cannot
 * be refused, and their memory is there. */
int fci_rules_set_process(struct fc *fc, struct fci_doc *const *from, struct fci_doc *const *to, struct fc_rules_error *err)
{
	int rc = set_groups(fc, from, to, err);

	if (rc == 0 && (rc = set_system(fc, from, to)) == 0 && (rc = set_health(fc, from, to)) < 0)
		(void)set_system(fc, to, from);
	if (rc < 0)
		(void)set_groups(fc, to, from, NULL);
	return rc;
}
