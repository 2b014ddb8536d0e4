/* SPDX-License-Identifier: BSD-2-Clause */
/* Every form of the guard macros, as users write them; compiled as C and as C++, never run. With FC_DISABLE
 * nothing that the user passes may be reported as unused. */
#include <fcguard/fcguard.h>

int serve(int request);
int busy(const struct fc_entry *e);
int function_scope(struct fc_iface *iface, int request);
int block(struct fc_iface *iface, int request);
int block_by_name(const char *name, int request);
int block_or(struct fc_iface *iface, int request);
int block_of_function(int request);
int one_expression(int request);
int wrapped(int request);
int on_one_line(struct fc_iface *a, struct fc_iface *b, int request);
int nested_expressions(int request);

int function_scope(struct fc_iface *iface, int request)
{
	struct fc_entry e FC_AUTO_EXIT = FC_ENTRY_INIT;
	int rc = fc_enter(&e, iface, NULL);

	if (rc)
		return busy(&e);
	rc = serve(request);
	if (rc < 0)
		fc_entry_mark(&e, FC_OUTCOME_ERROR);
	return rc;
}

int block(struct fc_iface *iface, int request)
{
	struct fc_ctx ctx;
	int rc;

	fc_opts_init(&ctx);
	ctx.priority = 3;
	FC_GUARD(outer, iface, &ctx) {
		FC_GUARD(inner, "database.query") {
			rc = serve(request);
		} else {
			rc = busy(&inner);
		}
	} else {
		rc = busy(&outer);
	}
	return rc;
}

int block_by_name(const char *name, int request)
{
	FC_GUARD(e, name) {
		return serve(request);
	}
	return -1;
}

int block_or(struct fc_iface *iface, int request)
{
	int rc = 0;

	FC_GUARD_OR(return -1, e, iface) {
		rc = serve(request);
	}
	return rc;
}

int block_of_function(int request)
{
	int rc;

	FC_GUARD_FN(e) {
		rc = serve(request);
	} else {
		rc = busy(&e);
	}
	return rc;
}

int one_expression(int request)
{
	return FC_GUARD_CALL("database.query", -1, serve(request));
}

#define SERVE_BOTH(a_, b_, r_) FC_GUARD(e, a_) { serve(r_); } FC_GUARD(e, b_) { serve(r_); } else { busy(&e); }

int on_one_line(struct fc_iface *a, struct fc_iface *b, int request)
{
	FC_GUARD(e, a) { serve(request); } else { busy(&e); } FC_GUARD(e, b) { serve(request); } else { busy(&e); }
	FC_GUARD(e, a) { FC_GUARD(f, b) { serve(request); } else { busy(&f); } } else { busy(&e); }
	FC_GUARD_OR(return 1, e, a) { FC_GUARD_OR(return 2, f, b) { serve(request); } } FC_GUARD_FN(g) { serve(request); }
	FC_GUARD_OR({ FC_GUARD(f, b) { busy(&f); } }, e, a) { FC_GUARD_FN(g) { FC_GUARD_FN(h) { return 3; } } }
	SERVE_BOTH(a, b, request)
	return 0;
}

int nested_expressions(int request)
{
	return FC_GUARD_CALL("a", -1, FC_GUARD_CALL("b", -2, serve(request)) + FC_GUARD_CALL("c", -3, serve(request)));
}

FC_GUARDED_FUNCTION(int, wrapped, (int request), serve(request), "database.query", -1)
