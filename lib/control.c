/* SPDX-License-Identifier: BSD-2-Clause */
/* control.c - what a program sets and asks of a whole context: switched off or not, its health. */
#include <errno.h>

#include "entry.h"
#include "limit.h"
#include "ruled.h"
#include "tick.h"
#include "wait.h"

/* Gates say CONTROL while the word says anything, so that calls look at their gate alone. A gate whose
 * flag is out of date is put right by the call that finds it. Lock-free, async-signal-safe. */
void fci_control_changed(struct fc *fc)
{
	struct fc_iface *f;

	for (uint32_t i = 0; (f = fc_iface_at(fc, i)) != NULL; i++)
		fci_gate_set(f, FCI_GATE_CONTROL, 0);
}

FCI_COLD uint32_t fci_control(struct fc_iface *f)
{
	fci_a32 *word = &f->fc->head->control;
	/* A3 -> X2 (fc_off_set): SC: the word was set before the flag that led here; after the flag is
	 * taken away it is read again, so a setter that came between is not missed. */
	uint32_t control = atomic_load_explicit(word, FCI_SC);

	if (control == 0) {
		fci_gate_set(f, 0, FCI_GATE_CONTROL);
		control = atomic_load_explicit(word, FCI_SC);
		if (control != 0)
			fci_gate_set(f, FCI_GATE_CONTROL, 0);
	}
	return control;
}

void fc_off_set(struct fc *fc, int off)
{
	struct fc_iface *f;

	if (!fci_fc_ok(fc) || !fc->seg)
		return;
	/* X2 -> A3 (fci_control). */
	if (off)
		atomic_fetch_or_explicit(&fc->head->control, FCI_CONTROL_OFF, FCI_SC);
	else
		atomic_fetch_and_explicit(&fc->head->control, ~FCI_CONTROL_OFF, FCI_SC);
	fci_control_changed(fc);
	for (uint32_t i = 0; off && (f = fc_iface_at(fc, i)) != NULL; i++)
		fci_wait_look_again(f);
}

int fc_off_get(const struct fc *fc)
{
	/* N1: a switch. */
	return fci_fc_ok(fc) && fc->seg && (atomic_load_explicit(&fc->head->control, FCI_RLX) & FCI_CONTROL_OFF) != 0;
}

int fc_health_get(struct fc *fc, struct fc_health *ret)
{
	if (!fci_fc_ok(fc) || !fc->has_health || !ret)
		return -EINVAL;
	return fci_health_snapshot(&fc->health, fci_clock_now(&fc->clock), ret);
}

int fc_health_set_source(struct fc *fc, fc_health_fn fn, void *arg)
{
	int locked;

	if (!fci_fc_ok(fc) || !fc->has_health)
		return -EINVAL;
	locked = fci_tick_lock(fc);
	fci_health_set_source(&fc->health, fn, arg);
	fc->health_at = 0;
	if (locked)
		fci_tick_unlock(fc);
	return 0;
}

int fci_health_change(struct fc *fc, const struct fc_health_opts *opts, uint32_t hand)
{
	int locked, rc;

	locked = fci_tick_lock(fc);
	rc = fci_health_set_opts(&fc->health, opts ? opts : &fc->health_made);
	fc->health_at = 0;
	if (locked)
		fci_tick_unlock(fc);
	if (rc < 0 || !hand)
		return rc;
	pthread_mutex_lock(&fc->setup);
	fc->by_hand |= hand;
	fc->hand_until = FC_NEVER_NS;
	pthread_mutex_unlock(&fc->setup);
	return rc;
}

int fc_health_set(struct fc *fc, const struct fc_health_opts *opts)
{
	return fci_fc_ok(fc) && fc->has_health ? fci_health_change(fc, opts, FCI_HAND_HEALTH) : -EINVAL;
}

uint32_t fc_health_word(const struct fc_iface *f)
{
	/* N2: advice; the judged word of the last sample. */
	return fci_iface_real(f) ? atomic_load_explicit(&f->fc->head->health, FCI_RLX) & ~(uint32_t)FC_HEALTH_GOOD : 0;
}
