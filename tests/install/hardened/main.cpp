#include <cstdio>
#include <cstring>

// A copy into a buffer whose size is known: what the stack protector and _FORTIFY_SOURCE guard.
int main(int count, char** arguments) {
    char buffer[16];
    std::strcpy(buffer, arguments[count - 1]);
    std::puts(buffer);
}
