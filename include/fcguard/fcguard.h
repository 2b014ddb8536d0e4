/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/fcguard.h - overload protection for servers. This header includes the others.
 *
 *     #include <fcguard/fcguard.h>
 *
 *     FC_OPTS(fc_iface_opts, opts, .cap = 64);
 *     fc_iface_set(fc_default(), "user.login", &opts, NULL);
 *     ...
 *     FC_GUARD(e, "user.login") { login(r); } else { reply_busy(r, &e); }
 *
 * Each header states threads, units, bounds, errors, memory and cost of its calls.
 */
#ifndef FC_FCGUARD_H
#define FC_FCGUARD_H

#include <fcguard/access.h>
#include <fcguard/adaptive.h>
#include <fcguard/base.h>
#include <fcguard/breaker.h>
#include <fcguard/context.h>
#include <fcguard/degrade.h>
#include <fcguard/entry.h>
#include <fcguard/err.h>
#include <fcguard/events.h>
#include <fcguard/fallback.h>
#include <fcguard/guard.h>
#include <fcguard/health.h>
#include <fcguard/field.h>
#include <fcguard/iface.h>
#include <fcguard/interceptor.h>
#include <fcguard/isolate.h>
#include <fcguard/keyed.h>
#include <fcguard/priority.h>
#include <fcguard/rate.h>
#include <fcguard/rules.h>
#include <fcguard/stats.h>
#include <fcguard/system.h>
#include <fcguard/time.h>

#endif /* FC_FCGUARD_H */
