/* Children that map a library mid-run and start a thread; the second ends as another program. */
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

volatile double sink;

static void spin(long times) {
    for (long i = 0; i < times; i++) sink += i * 0.5;
}

static void *thread(void *unused) {
    spin(8000000);
    return unused;
}

int main(void) {
    spin(8000000);
    for (int child = 0; child < 2; child++) {
        if (fork()) continue;
        double (*gamma)(double) = (double (*)(double))dlsym(dlopen("libm.so.6", RTLD_NOW), "tgamma");
        for (int i = 0; i < 300000; i++) sink += gamma(1.0 + i % 50);
        pthread_t id;
        pthread_create(&id, 0, thread, 0);
        pthread_join(id, 0);
        if (child) execl("/bin/echo", "echo", "done", (char *)0);
        _exit(0);
    }
    while (wait(0) > 0) {
    }
    return 0;
}
