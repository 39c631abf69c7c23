// The wheel of bochscpu-python 0.4.0 was linked against glibc 2.38 and emulates
// a Skylake-X. This library, loaded before it, gives what older ones lack and
// another processor, $BOCHS_MODEL.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned long long __isoc23_strtoull(const char *s, char **end, int base) { return strtoull(s, end, base); }

int __isoc23_sscanf(const char *s, const char *format, ...) {
	va_list args;
	va_start(args, format);
	int n = vsscanf(s, format, args);
	va_end(args);
	return n;
}

// create replaces create_MODEL_cpuid(BX_CPU_C *).
static void *create(void *cpu, void *caller) {
	const char *model = getenv("BOCHS_MODEL");
	char name[80];
	Dl_info info;
	snprintf(name, sizeof name, "_Z%zucreate_%s_cpuidP8BX_CPU_C", sizeof "create__cpuid" - 1 + strlen(model), model);
	void *lib = dladdr(caller, &info) ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	void *(*create)(void *) = lib ? (void *(*)(void *))dlsym(lib, name) : NULL;
	if (!create) {
		fprintf(stderr, "no processor model %s\n", model);
		exit(1);
	}
	fprintf(stderr, "emulating %s\n", model);
	return create(cpu);
}
void *_Z29create_corei7_skylake_x_cpuidP8BX_CPU_C(void *cpu) { return create(cpu, __builtin_return_address(0)); }
void *_Z23create_corei3_cnl_cpuidP8BX_CPU_C(void *cpu) { return create(cpu, __builtin_return_address(0)); }
