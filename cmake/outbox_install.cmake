# Installs what services link, for programs outside this tree: a component of find_package(outbox) for
# each library that says COMPONENT, and for pkg-config a file of the library's name. Each finds and
# links only what itself depends on.

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/outbox)
set(pkgconfig_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# outbox_outside(LIBRARY): how programs outside find a library of others: NEED, a package of CMake, or
# NAME=MODULE for pkg_check_modules; MODULE, its name for pkg-config, if it has one.
function(outbox_outside library)
    if(library MATCHES "^PkgConfig::(.+)$")
        set(module ${${CMAKE_MATCH_1}_MODULE_NAME})
        set(need ${CMAKE_MATCH_1}=${module})
    elseif(library MATCHES "^OpenSSL::(SSL|Crypto)$")
        string(TOLOWER lib${CMAKE_MATCH_1} module)
        set(need OpenSSL)
    elseif(library STREQUAL CURL::libcurl)
        set(module libcurl)
        set(need CURL)
    elseif(library STREQUAL Threads::Threads)
        set(module "")
        set(need Threads)
    else()
        message(FATAL_ERROR "outbox_outside does not say how programs outside find ${library}")
    endif()
    set(NEED ${need} PARENT_SCOPE)
    set(MODULE ${module} PARENT_SCOPE)
endfunction()

# outbox_pkgconfig(NAME DESCRIPTION REQUIRES LIBS)
function(outbox_pkgconfig name description requires libs)
    # Relative, so that an installed tree may be moved.
    file(RELATIVE_PATH prefix "/p/${pkgconfig_folder}" "/p")
    list(JOIN requires " " requires)
    file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/pkgconfig/${name}.pc" @ONLY CONTENT
"prefix=\${pcfiledir}/@prefix@
libdir=\${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=\${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: @name@
Description: Transactional outbox: @description@
Version: @PROJECT_VERSION@
Requires: @requires@
Libs: @libs@
Cflags: -I\${includedir}
")
    install(FILES "${CMAKE_BINARY_DIR}/pkgconfig/${name}.pc" DESTINATION ${pkgconfig_folder})
endfunction()

# outbox_install_library(NAME): after what it depends on. Leaves what it needs from outside in its
# properties OUTBOX_NEEDS and OUTBOX_MODULES.
function(outbox_install_library name)
    get_property(installed GLOBAL PROPERTY OUTBOX_INSTALLED)
    if(name IN_LIST installed)
        return()
    endif()
    set_property(GLOBAL APPEND PROPERTY OUTBOX_INSTALLED ${name})
    get_property(links TARGET ${name} PROPERTY OUTBOX_LINKS)
    set(needs "")
    set(modules "")
    set(requires "")
    foreach(link IN LISTS links)
        if(link MATCHES "^\\$<BUILD_INTERFACE:")
            continue()  # its headers alone
        elseif(link MATCHES "^outbox_")
            outbox_install_library(${link})
            get_property(more TARGET ${link} PROPERTY OUTBOX_NEEDS)
            list(APPEND needs ${more})
            get_property(more TARGET ${link} PROPERTY OUTBOX_MODULES)
            list(APPEND modules ${more})
            list(APPEND requires ${link})
        else()
            outbox_outside(${link})
            list(APPEND needs ${NEED})
            list(APPEND modules ${MODULE})
            list(APPEND requires ${MODULE})
        endif()
    endforeach()
    list(REMOVE_DUPLICATES needs)
    list(REMOVE_DUPLICATES modules)
    list(REMOVE_DUPLICATES requires)
    string(REGEX REPLACE "^outbox_" "" export_name ${name})
    set_target_properties(${name} PROPERTIES EXPORT_NAME ${export_name}
                          OUTBOX_NEEDS "${needs}" OUTBOX_MODULES "${modules}")
    install(TARGETS ${name} EXPORT outbox_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    outbox_pkgconfig(${name} "the library ${name}" "${requires}"
                     "-L\${libdir} -l${name} -lstdc++ -lpthread")
endfunction()

get_property(libraries GLOBAL PROPERTY OUTBOX_COMPONENTS)
set(components "")
set(needs_of_components "")
foreach(library IN LISTS libraries)
    outbox_install_library(${library})
    string(REGEX REPLACE "^outbox_" "" component ${library})
    list(APPEND components ${component})
    get_property(needs TARGET ${library} PROPERTY OUTBOX_NEEDS)
    list(JOIN needs " " needs)
    string(APPEND needs_of_components "set(outbox_needs_of_${component} ${needs})\n")
endforeach()
outbox_pkgconfig(outbox "all its libraries" "${libraries}" "")
list(JOIN components " " components)

install(DIRECTORY "${CMAKE_CURRENT_LIST_DIR}/../include/outbox" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT outbox_targets NAMESPACE outbox:: DESTINATION ${config_folder})
include(CMakePackageConfigHelpers)
configure_package_config_file(
    "${CMAKE_CURRENT_LIST_DIR}/outboxConfig.cmake.in" "${CMAKE_BINARY_DIR}/outboxConfig.cmake"
    INSTALL_DESTINATION ${config_folder} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/outboxConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/outboxConfig.cmake"
              "${CMAKE_BINARY_DIR}/outboxConfigVersion.cmake"
        DESTINATION ${config_folder})
